// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/tower_sources.hpp"

template tessera::any_source examples::make_towers(settings const&, tessera::host_exec const&, source_parts const&,
                                                   tessera::dot_tower const&);
template tessera::local_tables* examples::tables_of_towers<tessera::dot_tower>(tessera::any_source&);
