// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/training_run.hpp"

template void examples::run_job<tessera::float8_e5m2>(examples::job const&);
