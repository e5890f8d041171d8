# Sets xla_ffi_headers to the folder with xla/ffi/api/c_api.h, or to nothing: GDN2_XLA_FFI, else jaxlib's in the environment of
# the Python that builds a wheel, else in that of the tests (GDN2_PYTHON).
set(xla_ffi_headers "${GDN2_XLA_FFI}")
if(GDN2_XLA_FFI STREQUAL "" AND SKBUILD AND Python_EXECUTABLE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('jaxlib').submodule_search_locations[0])"
    OUTPUT_VARIABLE jaxlib OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(xla_ffi_headers "${jaxlib}/include")
elseif(GDN2_XLA_FFI STREQUAL "" AND NOT CMAKE_CROSSCOMPILING)
  set(python "${CMAKE_BINARY_DIR}/venv/bin/python")
  if(GDN2_PYTHON)
    set(python "${GDN2_PYTHON}")
  endif()
  get_filename_component(environment "${python}/../.." ABSOLUTE)
  file(GLOB xla_ffi_headers "${environment}/lib/python3*/site-packages/jaxlib/include")
endif()
if(xla_ffi_headers AND EXISTS "${xla_ffi_headers}/xla/ffi/api/c_api.h")
  message(STATUS "JAX handlers: ${xla_ffi_headers}")
elseif(GDN2_XLA_FFI)
  message(FATAL_ERROR "GDN2_XLA_FFI is ${GDN2_XLA_FFI}; it must be a folder with xla/ffi/api/c_api.h, or OFF")
else()
  message(STATUS "JAX handlers: none, no headers of jaxlib were found")
  set(xla_ffi_headers "")
endif()
