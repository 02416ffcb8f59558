# Toolchain: ARM with the distribution's cross compiler; tests run under qemu with that compiler's C library.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
find_program(TAP_QEMU NAMES qemu-aarch64 qemu-aarch64-static REQUIRED)
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=ld-linux-aarch64.so.1
  OUTPUT_VARIABLE TAP_QEMU_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT IS_ABSOLUTE "${TAP_QEMU_ROOT}")
  message(FATAL_ERROR "the C library for aarch64 was not found. Run: make setup   (or install libc6-dev-arm64-cross)")
endif()
get_filename_component(TAP_QEMU_ROOT ${TAP_QEMU_ROOT} DIRECTORY)
get_filename_component(TAP_QEMU_ROOT ${TAP_QEMU_ROOT}/.. REALPATH)
set(CMAKE_CROSSCOMPILING_EMULATOR ${TAP_QEMU} -L ${TAP_QEMU_ROOT})
