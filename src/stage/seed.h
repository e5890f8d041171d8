/* Stages of the seed's pipeline in the table: the vectorised arithmetic of kernels A-D and B1-B5 that is not a matrix product. */
#ifndef GDN2_STAGE_SEED_H
#define GDN2_STAGE_SEED_H

typedef struct gdn2_seed_stages {
  int placeholder;
} gdn2_seed_stages;
#endif
