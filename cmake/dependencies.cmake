# SQLite, libdeflate and json-c as one target. Static by default, so that the wheel and the library need nothing
# installed where they run.
add_library(tap_deps INTERFACE)
find_package(Threads REQUIRED)

function(tap_find_dependency name header library package)
  find_path(TAP_${name}_INCLUDE ${header})
  set(names ${library})
  if(TAP_STATIC_DEPS)
    set(names lib${library}.a ${library})
  endif()
  find_library(TAP_${name}_LIBRARY NAMES ${names})
  if(NOT TAP_${name}_INCLUDE OR NOT TAP_${name}_LIBRARY)
    message(FATAL_ERROR "${name} was not found. Run: make setup   (or install ${package})")
  endif()
  target_include_directories(tap_deps SYSTEM INTERFACE ${TAP_${name}_INCLUDE})
  target_link_libraries(tap_deps INTERFACE ${TAP_${name}_LIBRARY})
endfunction()

tap_find_dependency(SQLITE sqlite3.h sqlite3 libsqlite3-dev)
tap_find_dependency(DEFLATE libdeflate.h deflate libdeflate-dev)
tap_find_dependency(JSONC json-c/json.h json-c libjson-c-dev)
target_link_libraries(tap_deps INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
