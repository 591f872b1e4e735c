// All that a generated CUDA file includes.
#pragma once
#include "cuda_abi.h"
#include "cuda_cosines.h"
#include "cuda_planes.h"
#include "cuda_reduce.h"
#include "cuda_segment.h"
#include "cuda_top.h"
#include "dither.h"
#include "level.h"
#include "narrow.h"
