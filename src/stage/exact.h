#ifndef GDN2_STAGE_EXACT_H
#define GDN2_STAGE_EXACT_H
typedef struct gdn2_exact_stages { int placeholder; } gdn2_exact_stages;
#endif
