# Completes what was installed for packages, before they are made: what Debian wants in each, and where.
file(GLOB components ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*)
foreach(root ${components})
  get_filename_component(component ${root} NAME)
  string(TOUPPER ${component} component)
  set(doc ${root}/usr/share/doc/${CPACK_DEBIAN_${component}_PACKAGE_NAME})
  file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${doc} FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  execute_process(COMMAND gzip -9n INPUT_FILE ${CMAKE_CURRENT_LIST_DIR}/changelog OUTPUT_FILE ${doc}/changelog.gz
                  COMMAND_ERROR_IS_FATAL ANY)
  # The licence is in /usr/share/common-licenses.
  file(REMOVE ${root}/usr/share/doc/coll/LICENSE)
  # CPack strips programs and shared libraries.
  file(GLOB others ${root}/usr/lib/*/*.a ${root}/usr/lib/python3/dist-packages/coll*/*.so)
  foreach(file ${others})
    execute_process(COMMAND strip --strip-unneeded --enable-deterministic-archives ${file} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
