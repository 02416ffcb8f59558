# Each kernel file is compiled for the instruction set its name ends with; which one runs is chosen at run time.
# No reassociation: it would collect the additions of an unrolled loop at its end and spill what they wait for.
# Plain kernels are vectorised by the compiler for the architecture's baseline.
foreach(kernel ${TAP_KERNELS})
  get_filename_component(stem ${kernel} NAME_WE)
  if(stem MATCHES "_avx512$")
    set(flags "-O3;-fno-tree-reassoc;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mpopcnt")
  elseif(stem MATCHES "_avx2$")
    set(flags "-O3;-fno-tree-reassoc;-mavx2;-mfma")
  elseif(stem MATCHES "_neon$")
    set(flags "-O3")
  else()
    set(flags "-O3")
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
