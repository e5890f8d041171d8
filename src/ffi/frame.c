#include "ffi/frame.h"
#include <string.h>

/* The oldest version that has all that is read here, as it is today (jaxlib 0.5): XLA takes handlers of older versions, so one
 * library serves them all, whichever headers it was built with. */
enum { MAJOR = 0, MINOR = 1 };
_Static_assert(XLA_FFI_API_MAJOR == MAJOR && XLA_FFI_API_MINOR >= MINOR, "a version of the interface that is not known here");

int gdn2_ffi_asks_version(const XLA_FFI_CallFrame *frame) {
  const XLA_FFI_Extension_Base *extension = frame->extension_start;
  if (!extension || extension->type != XLA_FFI_Extension_Metadata) return 0;
  /* The base is the first member of the extension. */
  XLA_FFI_Metadata *metadata = ((const XLA_FFI_Metadata_Extension *)(const void *)extension)->metadata;
  metadata->api_version.major_version = MAJOR;
  metadata->api_version.minor_version = MINOR;
  return 1;
}

XLA_FFI_Error *gdn2_ffi_error(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code, const char *message) {
  XLA_FFI_Error_Create_Args error = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = message, .errc = code};
  return frame->api->XLA_FFI_Error_Create(&error);
}

XLA_FFI_Error *gdn2_ffi_result(const XLA_FFI_CallFrame *frame, gdn2_status status) {
  if (status == GDN2_OK) return NULL;
  const XLA_FFI_Error_Code code =
      status == GDN2_ERR_MEMORY ? XLA_FFI_Error_Code_RESOURCE_EXHAUSTED : XLA_FFI_Error_Code_INVALID_ARGUMENT;
  return gdn2_ffi_error(frame, code, gdn2_last_error());
}

/* The attribute of that name and type; NULL if there is none. */
static const void *attribute(const XLA_FFI_CallFrame *frame, const char *name, XLA_FFI_AttrType type) {
  const XLA_FFI_Attrs *attributes = &frame->attrs;
  const size_t length = strlen(name);
  for (int64_t i = 0; i < attributes->size; i++) {
    const XLA_FFI_ByteSpan *known = attributes->names[i];
    if (attributes->types[i] == type && known->len == length && memcmp(known->ptr, name, length) == 0)
      return attributes->attrs[i];
  }
  return NULL;
}

int64_t gdn2_ffi_integer(const XLA_FFI_CallFrame *frame, const char *name, int64_t fallback) {
  const XLA_FFI_Scalar *scalar = attribute(frame, name, XLA_FFI_AttrType_SCALAR);
  return scalar && scalar->dtype == XLA_FFI_DataType_S64 ? *(const int64_t *)scalar->value : fallback;
}

double gdn2_ffi_number(const XLA_FFI_CallFrame *frame, const char *name, double fallback) {
  const XLA_FFI_Scalar *scalar = attribute(frame, name, XLA_FFI_AttrType_SCALAR);
  return scalar && scalar->dtype == XLA_FFI_DataType_F64 ? *(const double *)scalar->value : fallback;
}

XLA_FFI_ByteSpan gdn2_ffi_text(const XLA_FFI_CallFrame *frame, const char *name) {
  const XLA_FFI_ByteSpan *text = attribute(frame, name, XLA_FFI_AttrType_STRING);
  return text ? *text : (XLA_FFI_ByteSpan){"", 0};
}

const XLA_FFI_Buffer *gdn2_ffi_argument(const XLA_FFI_CallFrame *frame, int64_t i) { return frame->args.args[i]; }

const XLA_FFI_Buffer *gdn2_ffi_return(const XLA_FFI_CallFrame *frame, int64_t i) { return frame->rets.rets[i]; }

int64_t gdn2_ffi_elements(const XLA_FFI_Buffer *buffer, int64_t from, int64_t to) {
  int64_t count = 1;
  for (int64_t axis = from; axis < to; axis++) count *= buffer->dims[axis];
  return count;
}
