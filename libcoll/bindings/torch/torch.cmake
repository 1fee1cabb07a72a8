# The backend for PyTorch: the package coll_torch, built in ${PROJECT_BINARY_DIR}/torch, where a program finds it with
# PYTHONPATH, and installed for ${COLL_TORCH_PYTHON}. It needs PyTorch with its headers, those of Python and pybind11
# (Debian: python3-torch, libtorch-dev, python3-dev, pybind11-dev; PyTorch's own wheels have their part).
set(here ${PROJECT_SOURCE_DIR}/libcoll/bindings/torch)
if(NOT DEFINED COLL_TORCH_PYTHON AND PROJECT_IS_TOP_LEVEL)
  find_program(python3 python3)
  mark_as_advanced(python3)
  foreach(candidate ${python3} /usr/bin/python3)
    if(COLL_TORCH_PYTHON)
      break()
    endif()
    execute_process(COMMAND ${candidate} -c "import os, sysconfig, torch
at = [sysconfig.get_path('include'), os.path.join(os.path.dirname(torch.__file__), 'include'), '/usr/include']
has = lambda name: any(os.path.exists(os.path.join(folder, name)) for folder in at)
raise SystemExit(not all(map(has, ['Python.h', 'ATen/ATen.h', 'pybind11/pybind11.h'])))"
                    RESULT_VARIABLE lacks OUTPUT_QUIET ERROR_QUIET)
    if(lacks EQUAL 0)
      set(COLL_TORCH_PYTHON ${candidate} CACHE FILEPATH "Python whose PyTorch gets the backend coll; OFF: none")
    endif()
  endforeach()
endif()
if(NOT COLL_TORCH_PYTHON AND PROJECT_IS_TOP_LEVEL)
  message(STATUS "no Python with PyTorch and its headers (Debian: python3-torch, libtorch-dev, python3-dev, pybind11-dev): \
built without the backend for PyTorch")
endif()
if(NOT COLL_TORCH_PYTHON)
  return()
endif()
message(STATUS "the backend for PyTorch is built for ${COLL_TORCH_PYTHON}")
file(GLOB sources CONFIGURE_DEPENDS ${here}/*.py ${here}/*.cpp ${here}/*.hpp ${here}/coll_torch/*.py)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/libcoll/include/coll/*.h)
set(package ${PROJECT_BINARY_DIR}/torch)
# The extension finds the library in the build folder, and from where it is installed.
coll_python_folders(${COLL_TORCH_PYTHON} COLL_TORCH_DIR "the backend for PyTorch" coll_torch to_library)
add_custom_command(OUTPUT ${package}/stamp
  COMMAND ${CMAKE_COMMAND} -E env "CXX=${CMAKE_CXX_COMPILER_LAUNCHER} ${CMAKE_CXX_COMPILER}"
          "CXXFLAGS=$<$<BOOL:${COLL_WERROR}>:-Werror>" ${COLL_TORCH_PYTHON} ${here}/build.py ${package} $<TARGET_FILE_DIR:coll> ${here}/../../include
          "$ORIGIN/../..:$ORIGIN/${to_library}"
  DEPENDS coll ${sources} ${headers} VERBATIM)
add_custom_target(torch ALL DEPENDS ${package}/stamp)
install(DIRECTORY ${package}/coll_torch DESTINATION ${COLL_TORCH_DIR} COMPONENT torch PATTERN __pycache__ EXCLUDE)
coll_python_without_runpath(${COLL_TORCH_DIR}/coll_torch/_C.*.so torch)
