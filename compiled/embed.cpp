// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/featured_tables.ipp>
#include <tessera/embed/local_tables.ipp>
#include <tessera/embed/lookup_checks.ipp>
#include <tessera/embed/row_store.ipp>
