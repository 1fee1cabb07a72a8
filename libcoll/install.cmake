# Rules for `cmake --install`: libraries, headers, programs, pkg-config and CMake packages.
include(CMakePackageConfigHelpers)
set(COLL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/coll)

install(TARGETS coll EXPORT coll-targets)
install(EXPORT coll-targets NAMESPACE coll:: DESTINATION ${COLL_CMAKE_DIR})
# A separate export set, so that the shared library can be used without the development files of
# OpenSSL and hwloc.
install(TARGETS coll_static EXPORT coll-static-targets)
install(EXPORT coll-static-targets NAMESPACE coll:: DESTINATION ${COLL_CMAKE_DIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/libcoll/include/coll TYPE INCLUDE)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md TYPE DOC)

foreach(program collrun collctl coll_perf coll_recovery coll_train coll_explain coll_calibrate coll_topo)
  if(TARGET ${program})
    install(TARGETS ${program})
  endif()
endforeach()

file(RELATIVE_PATH COLL_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${CMAKE_SOURCE_DIR}/libcoll/coll.pc.in ${CMAKE_BINARY_DIR}/coll.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/coll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(
  ${CMAKE_SOURCE_DIR}/libcoll/coll-config.cmake.in ${CMAKE_BINARY_DIR}/coll-config.cmake
  INSTALL_DESTINATION ${COLL_CMAKE_DIR})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/coll-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/coll-config.cmake ${CMAKE_BINARY_DIR}/coll-config-version.cmake
        DESTINATION ${COLL_CMAKE_DIR})
