# Sequences over MPI ranks: the same programs on several numbers of them. From five on, maps are composed before a state arrives.
if(TARGET gdn2_mpi)
  add_library(gdn2_test_mpi STATIC support/mpi_pack.c support/mpi_shard.c support/double_case.c support/gradient_oracle.c
                                   support/gradient_run.c support/width_case.c support/width_number.c support/width_run.c)
  target_link_libraries(gdn2_test_mpi PUBLIC gdn2_test_support MPI::MPI_C)

  # More ranks than cores, and root in a container: Open MPI wants to be asked; others do not read these.
  set(environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
                  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
                  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
                  OMP_WAIT_POLICY=passive)
  if(GDN2_SANITIZE)
    # Open MPI's plugins leak, and are no longer loaded when the leaks are listed: they cannot be told from others by name.
    list(APPEND environment ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0)
  endif()

  # Where ranks cannot be started, as in a container without a network, there is nothing to be tested.
  if(NOT DEFINED GDN2_MPI_RUNS)
    set(probe ${CMAKE_CURRENT_BINARY_DIR}/mpi_probe)
    file(WRITE ${probe}.c "#include <mpi.h>\nint main(void) { return MPI_Init(0, 0) || MPI_Barrier(MPI_COMM_WORLD) || MPI_Finalize(); }\n")
    try_compile(compiled ${probe} SOURCES ${probe}.c LINK_LIBRARIES MPI::MPI_C COPY_FILE ${probe}.out)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env ${environment} ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 ${probe}.out
                    TIMEOUT 60 RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    set(GDN2_MPI_RUNS OFF)
    if(failed STREQUAL "0")
      set(GDN2_MPI_RUNS ON)
    else()
      message(WARNING "${MPIEXEC_EXECUTABLE} starts no ranks here (${failed}); the tests over MPI ranks are left out.\n${said}")
    endif()
    set(GDN2_MPI_RUNS ${GDN2_MPI_RUNS} CACHE INTERNAL "MPI starts ranks on this machine")
  endif()

  # gdn2_mpi_test(NAME RANKS...). With sanitizers on five ranks only.
  function(gdn2_mpi_test name)
    add_executable(${name} ${name}.c)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O2>)
    target_link_libraries(${name} PRIVATE gdn2_mpi gdn2_test_mpi)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    if(GDN2_SANITIZE)
      set(ARGN 5)
    endif()
    if(NOT GDN2_MPI_RUNS)
      return()
    endif()
    foreach(ranks ${ARGN})
      add_test(NAME ${name}/${ranks} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
                                             $<TARGET_FILE:${name}>)
      set_tests_properties(${name}/${ranks} PROPERTIES TIMEOUT 120 PROCESSORS 2 ENVIRONMENT "${environment}")
    endforeach()
  endfunction()

  gdn2_mpi_test(test_mpi_exact 1 2 3 4 7)
  gdn2_mpi_test(test_mpi_options 1 3 6)
  gdn2_mpi_test(test_mpi_errors 1 2 4)
  gdn2_mpi_test(test_mpi_bits 2 3 6)
  gdn2_mpi_test(test_mpi_conv 1 2 5)
endif()
