/* The entropy decoder with shifts by a register (BMI2), which do not touch the flags. */
#include "jpeg/entropy.h"

#define ENTROPY stk_jpeg_entropy_avx2
#include "jpeg/entropy_inner.h"
