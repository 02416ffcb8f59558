# cmake --install: headers, both libraries, pkg-config file, CMake package and the command.
include(CMakePackageConfigHelpers)
set(TAP_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tensortap)

install(DIRECTORY include/tensortap DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS tensortap EXPORT tensortapTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The archive is not exported: who links it statically names SQLite, libdeflate and json-c too, as pkg-config --static
# does.
install(FILES $<TARGET_FILE:tensortap_static> DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tap_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT tensortapTargets NAMESPACE tensortap:: DESTINATION ${TAP_PACKAGE_DIR})

configure_package_config_file(cmake/tensortapConfig.cmake.in ${CMAKE_BINARY_DIR}/tensortapConfig.cmake
  INSTALL_DESTINATION ${TAP_PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tensortapConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tensortapConfig.cmake ${CMAKE_BINARY_DIR}/tensortapConfigVersion.cmake
  DESTINATION ${TAP_PACKAGE_DIR})

# The prefix is found from where the file lies, so that an installed tree may be moved.
file(RELATIVE_PATH TAP_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" TAP_PC_PREFIX "${TAP_PC_PREFIX}")
configure_file(cmake/tensortap.pc.in ${CMAKE_BINARY_DIR}/tensortap.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tensortap.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Shell completion, where bash and zsh look for it.
install(FILES completions/tensortap.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME tensortap)
install(FILES completions/_tensortap DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
