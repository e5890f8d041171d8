#include "gdn2.h"

#define TEXT(x) #x
#define DOTTED(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *gdn2_version(void) { return DOTTED(GDN2_VERSION_MAJOR, GDN2_VERSION_MINOR, GDN2_VERSION_PATCH); }
