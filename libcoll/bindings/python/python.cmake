# The Python package: built in ${PROJECT_BINARY_DIR}/python, where a program finds it with PYTHONPATH, and installed for
# ${COLL_PYTHON}. It needs cffi and the headers of Python (Debian: python3-cffi, python3-dev).
set(here ${PROJECT_SOURCE_DIR}/libcoll/bindings/python)
if(NOT DEFINED COLL_PYTHON AND PROJECT_IS_TOP_LEVEL)
  find_program(python3 python3)
  mark_as_advanced(python3)
  foreach(modules "cffi, numpy" cffi) # the package works without NumPy, too
    foreach(candidate ${python3} /usr/bin/python3)
      execute_process(COMMAND ${candidate} -c "import os, sysconfig, ${modules}
raise SystemExit(not os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
                      RESULT_VARIABLE lacks OUTPUT_QUIET ERROR_QUIET)
      if(lacks EQUAL 0 AND NOT COLL_PYTHON)
        set(COLL_PYTHON ${candidate} CACHE FILEPATH "Python for which the package is built; OFF: none")
      endif()
    endforeach()
  endforeach()
endif()
if(NOT COLL_PYTHON AND PROJECT_IS_TOP_LEVEL)
  message(STATUS "no Python with cffi and Python.h (Debian: python3-cffi, python3-dev): built without the Python package")
endif()
if(NOT COLL_PYTHON)
  return()
endif()
file(GLOB modules CONFIGURE_DEPENDS ${here}/*.py ${here}/coll/*.py ${here}/coll/py.typed)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/libcoll/include/coll/*.h)
set(package ${PROJECT_BINARY_DIR}/python)
# The extension finds the library in the build folder, and from where it is installed.
coll_python_folders(${COLL_PYTHON} COLL_PYTHON_DIR "the Python package" coll to_library)
add_custom_command(OUTPUT ${package}/stamp
  COMMAND ${COLL_PYTHON} ${here}/build.py ${package} $<TARGET_FILE_DIR:coll> ${here}/../../include
          "$ORIGIN/../..:$ORIGIN/${to_library}"
  COMMAND ${CMAKE_COMMAND} -E touch ${package}/stamp
  DEPENDS coll ${modules} ${headers} VERBATIM)
add_custom_target(python ALL DEPENDS ${package}/stamp)
install(DIRECTORY ${package}/coll DESTINATION ${COLL_PYTHON_DIR} COMPONENT python PATTERN __pycache__ EXCLUDE)
coll_python_without_runpath(${COLL_PYTHON_DIR}/coll/_coll.*.so python)
