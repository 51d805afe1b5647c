// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/training_run.hpp"

template void examples::run_job<tessera::bfloat16>(examples::click_job const&);
