# Rules for `cmake --install`: libraries, headers, programs, pkg-config and CMake packages, in the components runtime,
# development, tools, documentation, python and torch; and the target `uninstall`. A project that adds libcoll with
# add_subdirectory(... EXCLUDE_FROM_ALL) does not install it.
include(CMakePackageConfigHelpers)
set(COLL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/coll)

if(BUILD_SHARED_LIBS)
  install(TARGETS coll EXPORT coll-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
  install(EXPORT coll-targets NAMESPACE coll:: DESTINATION ${COLL_CMAKE_DIR} COMPONENT development)
endif()
# A separate export set, so that the shared library can be used without the development files of
# OpenSSL and hwloc.
install(TARGETS coll_static EXPORT coll-static-targets COMPONENT development)
install(EXPORT coll-static-targets NAMESPACE coll:: DESTINATION ${COLL_CMAKE_DIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/libcoll/include/coll TYPE INCLUDE COMPONENT development)
# In the folders of the sources, so that links from page to page work.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        TYPE DOC COMPONENT documentation)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs TYPE DOC COMPONENT documentation
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN examples/* PATTERN site EXCLUDE PATTERN spack EXCLUDE
        PATTERN conda EXCLUDE PATTERN debian EXCLUDE)

set(programs)
foreach(program collrun collctl coll_perf coll_recovery coll_train coll_explain coll_calibrate coll_topo)
  if(TARGET ${program})
    list(APPEND programs ${program})
  endif()
endforeach()
if(programs)
  install(TARGETS ${programs} COMPONENT tools)
endif()

# Man pages are made of the headers and of what the programs print with --help.
find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
if(NOT PROJECT_IS_TOP_LEVEL OR COLL_SANITIZE)
  # Nobody installs these.
elseif(Python3_Interpreter_FOUND)
  set(documented ${programs})
  if(CMAKE_CROSSCOMPILING) # they do not run here
    set(documented)
  endif()
  set(paths)
  foreach(program ${documented})
    list(APPEND paths $<TARGET_FILE:${program}>)
  endforeach()
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/libcoll/include/coll/*.h)
  set(docs ${PROJECT_SOURCE_DIR}/docs)
  add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/stamp
    COMMAND ${Python3_EXECUTABLE} -B ${docs}/man.py ${PROJECT_SOURCE_DIR}/libcoll/include/coll ${PROJECT_BINARY_DIR}/man
            ${PROJECT_VERSION} ${paths}
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/stamp
    DEPENDS ${headers} ${docs}/man.py ${docs}/operations.py ${documented} COMMENT "Writing man pages" VERBATIM)
  add_custom_target(man ALL DEPENDS ${PROJECT_BINARY_DIR}/man/stamp)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/man3 ${PROJECT_BINARY_DIR}/man/man7 TYPE MAN COMPONENT development)
  if(documented)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/man1 TYPE MAN COMPONENT tools)
  endif()
else()
  message(STATUS "no Python 3.9 or newer: built without man pages")
endif()

# bash loads the file that has the name of the command.
if(programs)
  set(completions ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  foreach(program ${programs})
    install(FILES ${PROJECT_SOURCE_DIR}/libcoll/tools/completion.bash DESTINATION ${completions} RENAME ${program}
            COMPONENT tools)
  endforeach()
endif()

file(RELATIVE_PATH COLL_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(COLL_PC_MACHINE)
if(COLL_MACHINE)
  set(COLL_PC_MACHINE -lhwloc)
endif()
configure_file(${PROJECT_SOURCE_DIR}/libcoll/coll.pc.in ${PROJECT_BINARY_DIR}/coll.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/coll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/libcoll/coll-config.cmake.in ${PROJECT_BINARY_DIR}/coll-config.cmake
  INSTALL_DESTINATION ${COLL_CMAKE_DIR})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/coll-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/coll-config.cmake ${PROJECT_BINARY_DIR}/coll-config-version.cmake
        DESTINATION ${COLL_CMAKE_DIR} COMPONENT development)

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/libcoll/uninstall.cmake
                    WORKING_DIRECTORY ${PROJECT_BINARY_DIR} COMMENT "Removing what was installed" VERBATIM)
endif()
