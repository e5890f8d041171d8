#include "stage/exact.h"
#define GDN2_EXACT_STAGES {0}
