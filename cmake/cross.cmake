# What can be built for another architecture without its libraries, with its tests: tensors, graphs and the engine, whose
# libraries are looked for at run time. Recording is not among it.
file(GLOB TAP_SOURCES CONFIGURE_DEPENDS src/base/*.c src/tensor/*.c
  src/graph/*.c src/frontend/*.c src/engine/*.c)
file(GLOB TAP_KERNELS CONFIGURE_DEPENDS src/tensor/kernels/*.c src/engine/kernels/*.c)
add_library(tap_kernels STATIC ${TAP_SOURCES} ${TAP_KERNELS})
target_compile_definitions(tap_kernels PRIVATE _GNU_SOURCE)
target_include_directories(tap_kernels PUBLIC include src)
target_compile_options(tap_kernels PRIVATE -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
  -Wmissing-prototypes -ffp-contract=off -fno-math-errno $<$<BOOL:${TAP_STRICT}>:-Werror>)
include(cmake/kernels.cmake)
find_package(Threads REQUIRED)
target_link_libraries(tap_kernels PUBLIC Threads::Threads ${CMAKE_DL_LIBS} m)

enable_testing()
file(GLOB TAP_TEST_SOURCES CONFIGURE_DEPENDS tests/tensor/test_*.c tests/graph/test_*.c tests/engine/test_*.c
  tests/engine/kernels/test_*.c)
foreach(source ${TAP_TEST_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  # tests/cross has a small cmocka.h: the library itself is not there for the other architecture
  target_include_directories(${name} PRIVATE src tests tests/cross)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow -ffp-contract=off $<$<BOOL:${TAP_STRICT}>:-Werror>)
  target_link_libraries(${name} PRIVATE tap_kernels)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 1200)
endforeach()
