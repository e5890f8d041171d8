#include "stage/seed.h"
#define GDN2_SEED_STAGES {0}
