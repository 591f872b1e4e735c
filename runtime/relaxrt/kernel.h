// All that a generated file includes.
#pragma once
#include "abi.h"
#include "ahead.h"
#include "arithmetic.h"
#include "cosines.h"
#include "dither.h"
#include "halves.h"
#include "level.h"
#include "narrow.h"
#include "pack.h"
#include "reduce.h"
#include "scratch.h"
#include "top.h"
