# Each kernel file is compiled for the instruction set its name ends with; which one runs is chosen at run time.
# No reassociation: GCC would collect the additions of an unrolled loop at its end and spill what they wait for.
# Plain kernels are vectorised by the compiler for the architecture's baseline.
set(TAP_KERNEL_FLAGS -O3)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  list(APPEND TAP_KERNEL_FLAGS -fno-tree-reassoc)
endif()
foreach(kernel ${TAP_KERNELS})
  get_filename_component(stem ${kernel} NAME_WE)
  if(stem MATCHES "_avx512$")
    set(flags "${TAP_KERNEL_FLAGS};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-mpopcnt")
  elseif(stem MATCHES "_avx2$")
    set(flags "${TAP_KERNEL_FLAGS};-mavx2;-mfma;-mf16c")
  else()
    set(flags "${TAP_KERNEL_FLAGS}")
  endif()
  # comparisons may be computed for both arms of a choice, else loops with choices stay scalar
  if(stem MATCHES "^pointwise_")
    list(APPEND flags -fno-trapping-math)
  endif()
  # a float that does not fit an integer becomes what the processor makes of it, as in ATen
  if(TAP_FUZZ)
    list(APPEND flags -fno-sanitize=float-cast-overflow)
  endif()
  if((stem MATCHES "_avx" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64") OR
     (stem MATCHES "_neon$" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64"))
    set_source_files_properties(${kernel} PROPERTIES HEADER_FILE_ONLY TRUE)
  else()
    set_source_files_properties(${kernel} PROPERTIES COMPILE_OPTIONS "${flags}")
  endif()
endforeach()
# gathering strided views is a kernel too, of which the baseline's version is enough
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/tensor/walk.c PROPERTIES COMPILE_OPTIONS "-O3")
