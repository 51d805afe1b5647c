# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(tessera_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/tessera")

install(DIRECTORY include/tessera DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp" PATTERN "*.ipp" PATTERN "*.cuh")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# One export a component: find_package(tessera) alone must not ask for nlohmann-json.
install(TARGETS tessera EXPORT tesseraTargets INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION "${tessera_package_dir}")
if(TARGET tessera_files)
  install(TARGETS tessera_files EXPORT tesseraFilesTargets)
  install(EXPORT tesseraFilesTargets NAMESPACE tessera:: DESTINATION "${tessera_package_dir}")
endif()
if(TESSERA_COMPILED)
  set_target_properties(tessera_compiled PROPERTIES EXCLUDE_FROM_ALL OFF)
  install(TARGETS tessera_compiled EXPORT tessera_compiled_targets OPTIONAL)  # headers are installed also from a folder where nothing was built
  install(EXPORT tessera_compiled_targets NAMESPACE tessera:: DESTINATION "${tessera_package_dir}")
endif()
function(tessera_install_products name found)
  if(TARGET tessera_${name})
    install(TARGETS tessera_${name} EXPORT tessera_${name}_targets)
    install(EXPORT tessera_${name}_targets NAMESPACE tessera:: DESTINATION "${tessera_package_dir}")
    install(FILES cmake/${found}.cmake DESTINATION "${tessera_package_dir}")
  endif()
endfunction()
tessera_install_products(blas cblas)
tessera_install_products(dnnl onednn)
tessera_install_products(mpi mpilibrary)
tessera_install_products(cuda cudatoolkit)
tessera_install_products(nccl nccllibrary)
if(TARGET tessera_nccl)
  install(FILES cmake/cudatoolkit.cmake DESTINATION "${tessera_package_dir}")  # which nccllibrary.cmake includes
endif()
tessera_install_products(parquet arrow)

configure_package_config_file(cmake/tesseraConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/package/tesseraConfig.cmake"
                              INSTALL_DESTINATION "${tessera_package_dir}")
# Below 1.0 a minor version may break its users.
set(any_processor ARCH_INDEPENDENT)
if(TESSERA_COMPILED)
  set(any_processor)
endif()
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/package/tesseraConfigVersion.cmake" COMPATIBILITY SameMinorVersion ${any_processor})
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/package/tesseraConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/package/tesseraConfigVersion.cmake"
        DESTINATION "${tessera_package_dir}")
