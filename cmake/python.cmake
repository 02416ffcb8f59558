# The Python extension, built against the limited API so that one file serves CPython 3.10 and later, and the command
# beside it, where the library looks for its writer.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

file(GLOB TAP_PYTHON_SOURCES CONFIGURE_DEPENDS python/csrc/*.c)
add_library(tap_python MODULE ${TAP_PYTHON_SOURCES})
set_target_properties(tap_python PROPERTIES PREFIX "" OUTPUT_NAME _core SUFFIX .abi3.so)
target_compile_definitions(tap_python PRIVATE _GNU_SOURCE Py_LIMITED_API=0x030A0000)
# the extension sees the public headers only
target_include_directories(tap_python PRIVATE include)
target_include_directories(tap_python SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_compile_options(tap_python PRIVATE -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
  -Wmissing-prototypes $<$<BOOL:${TAP_STRICT}>:-Werror>)
target_link_libraries(tap_python PRIVATE tensortap_static)
# nothing but the module's own entry is visible, so a libtensortap elsewhere in the process is not disturbed
target_link_options(tap_python PRIVATE -Wl,--exclude-libs,ALL)

install(TARGETS tap_python LIBRARY DESTINATION tensortap COMPONENT python)
install(PROGRAMS $<TARGET_FILE:tap_cli> DESTINATION tensortap/_bin COMPONENT python)
# read by every Python at its start; does something only where TENSORTAP_COMPAT is set
install(FILES python/tensortap_compat.pth DESTINATION . COMPONENT python)
