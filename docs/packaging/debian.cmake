# Debian packages: `cpack -G DEB` in a build folder that was configured with -DCMAKE_INSTALL_PREFIX=/usr.
set(debian ${CMAKE_CURRENT_LIST_DIR}/debian)
# Who makes the packages says so, as with Debian's own tools.
set(maintainer "The libcoll authors <libcoll@localhost>")
if(DEFINED ENV{DEBEMAIL})
  set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${maintainer}")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME libcoll)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development tools documentation)
# Without the Python that Debian has, there are no packages for it.
foreach(binding python torch)
  string(TOUPPER ${binding} name)
  if(TARGET ${binding} AND "${COLL_${name}_DIR}" STREQUAL lib/python3/dist-packages)
    list(APPEND CPACK_COMPONENTS_ALL ${binding})
  endif()
endforeach()
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own, below
set(CPACK_PRE_BUILD_SCRIPTS ${debian}/complete.cmake)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# What dpkg-shlibdeps says of libcoll.so itself is below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(same "(= ${PROJECT_VERSION})")

# Describes a package: its component, name, section and synopsis.
function(coll_package component name section synopsis)
  set(CPACK_DEBIAN_${component}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${component}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${component}_DESCRIPTION "${synopsis}
Ranks are threads or processes, on one host or many. Together they sum,
broadcast, gather and exchange data, over shared memory, InfiniBand, RoCE or
TCP. No operation hangs: each ends with a result, or with an error that names
the rank to blame." PARENT_SCOPE)
endfunction()
coll_package(RUNTIME libcoll0 libs "collective communication for C programs")
coll_package(DEVELOPMENT libcoll-dev libdevel "collective communication for C programs (development files)")
coll_package(TOOLS libcoll-tools utils "collective communication for C programs (launcher and other programs)")
coll_package(DOCUMENTATION libcoll-doc doc "collective communication for C programs (documentation)")
coll_package(PYTHON python3-coll python "collective communication for C programs (Python package)")
coll_package(TORCH python3-coll-torch python "collective communication for C programs (backend for PyTorch)")

# The trigger runs ldconfig. CPack would add two scripts that do it, too, unless files of their names are listed; and it
# leaves out a file that is not there.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
    ${debian}/symbols ${debian}/shlibs ${debian}/triggers ${debian}/none/postinst ${debian}/none/postrm)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libcoll0 ${same}")
# For programs that are linked with libcoll.a.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libcoll-doc, libhwloc-dev, libssl-dev, pkg-config")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "dataset-fashion-mnist, openssh-client")
set(CPACK_DEBIAN_DOCUMENTATION_PACKAGE_ARCHITECTURE all)
# Sets a variable to what an extension needs, which is for one minor version of Python.
function(coll_python_versions interpreter result)
  execute_process(COMMAND ${interpreter} -c "import sys; v = sys.version_info
print(f'python3 (>= {v.major}.{v.minor}~), python3 (<< {v.major}.{v.minor + 1}~)')"
                  OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${result} ${python} PARENT_SCOPE)
endfunction()
if(COLL_PYTHON)
  coll_python_versions(${COLL_PYTHON} python)
endif()
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "libcoll0 ${same}, ${python}, python3-cffi-backend")
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS python3-numpy)
if(COLL_TORCH_PYTHON)
  coll_python_versions(${COLL_TORCH_PYTHON} python)
endif()
set(CPACK_DEBIAN_TORCH_PACKAGE_DEPENDS "libcoll0 ${same}, ${python}, python3-torch")
include(CPack)
