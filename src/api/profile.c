#include "gdn2.h"

const char *gdn2_stage_name(gdn2_stage stage) {
  static const char *const names[GDN2_STAGES] = {
      [GDN2_STAGE_SCORES] = "scores",
      [GDN2_STAGE_PROJECT] = "project",
      [GDN2_STAGE_SOLVE] = "solve",
      [GDN2_STAGE_OUTPUT] = "output",
      [GDN2_STAGE_UPDATE] = "update",
      [GDN2_STAGE_ADJOINT] = "adjoint",
      [GDN2_STAGE_BACK_PROJECT] = "back_project",
      [GDN2_STAGE_GATES] = "gates",
      [GDN2_STAGE_VALUES] = "values",
      [GDN2_STAGE_STATE_ADJOINT] = "state_adjoint",
      [GDN2_STAGE_CHAIN] = "chain",
      [GDN2_STAGE_SEED_A] = "seed_A",
      [GDN2_STAGE_SEED_B] = "seed_B",
      [GDN2_STAGE_SEED_C] = "seed_C",
      [GDN2_STAGE_SEED_D] = "seed_D",
      [GDN2_STAGE_SEED_B2] = "seed_B2",
      [GDN2_STAGE_SEED_B1] = "seed_B1",
      [GDN2_STAGE_SEED_B3] = "seed_B3",
      [GDN2_STAGE_SEED_B4] = "seed_B4",
      [GDN2_STAGE_SEED_B5] = "seed_B5",
  };
  return (unsigned)stage < GDN2_STAGES ? names[stage] : "unknown";
}
