/* How the handlers of XLA's foreign function interface read their call frame. Plain C over xla/ffi/api/c_api.h, which is needed
 * when the library is built and not afterwards. */
#ifndef GDN2_FFI_FRAME_H
#define GDN2_FFI_FRAME_H

#include "gdn2.h"
#include <xla/ffi/api/c_api.h>

/* 1 if the frame only asks which version of the interface the handler was built for; the answer is given. */
int gdn2_ffi_asks_version(const XLA_FFI_CallFrame *frame);

/* An error for XLA, which becomes an exception in Python. */
XLA_FFI_Error *gdn2_ffi_error(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code, const char *message);

/* The error of a status with the sentence of gdn2_last_error(); NULL for GDN2_OK. */
XLA_FFI_Error *gdn2_ffi_result(const XLA_FFI_CallFrame *frame, gdn2_status status);

/* Attributes by name; fallback if there is none of that name and type. */
int64_t gdn2_ffi_integer(const XLA_FFI_CallFrame *frame, const char *name, int64_t fallback);
double gdn2_ffi_number(const XLA_FFI_CallFrame *frame, const char *name, double fallback);
/* Of length 0 if absent. */
XLA_FFI_ByteSpan gdn2_ffi_text(const XLA_FFI_CallFrame *frame, const char *name);

const XLA_FFI_Buffer *gdn2_ffi_argument(const XLA_FFI_CallFrame *frame, int64_t i);
const XLA_FFI_Buffer *gdn2_ffi_return(const XLA_FFI_CallFrame *frame, int64_t i);

/* Product of the axes from..to-1. */
int64_t gdn2_ffi_elements(const XLA_FFI_Buffer *buffer, int64_t from, int64_t to);

#endif
