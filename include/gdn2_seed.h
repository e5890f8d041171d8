/* gdn2_seed.h - the seed's pipeline, stage by stage; included by gdn2.h. */
#ifndef GDN2_SEED_H
#define GDN2_SEED_H
#endif
