# Sets <cache_name>, where the packages of an interpreter are installed (`what` says of which), and <to_library>: from a
# package there to the library, for the extension's RUNPATH.
function(coll_python_folders python cache_name what package to_library)
  execute_process(COMMAND ${python} -c "import sys; print('python3/dist-packages' if sys.prefix == '/usr' else \
f'python{sys.version_info[0]}.{sys.version_info[1]}/site-packages')" OUTPUT_VARIABLE folder
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${cache_name} lib/${folder} CACHE PATH "Where ${what} is installed")
  file(RELATIVE_PATH path /prefix/${${cache_name}}/${package} /prefix/${CMAKE_INSTALL_LIBDIR})
  set(${to_library} ${path} PARENT_SCOPE)
endfunction()

# Installs an extension, named by a pattern, without RUNPATH in /usr: there the dynamic loader finds the library, and Debian
# forbids such paths.
function(coll_python_without_runpath pattern component)
  install(CODE "if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  file(GLOB extension \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${pattern}\")
  file(RPATH_REMOVE FILE \"\${extension}\")
endif()" COMPONENT ${component})
endfunction()
