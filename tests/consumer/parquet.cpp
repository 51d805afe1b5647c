// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/session_clustering.hpp>
#include <tessera/data/session_shards.hpp>
#include <tessera/tessera_parquet.hpp>

int parquet_files(tessera::host_exec const& exec) {
  tessera::sample_schema const schema{"label", {}, {"items"}, "session", "time"};
  tessera::sample_columns samples(schema);
  samples.resize(exec, 2);
  for (int i = 0; i < 2; ++i) {
    samples.labels()[i] = 1;
    samples.sessions()[i] = 2 - i;
    samples.times()[i] = i;
    for (int row = 0; row <= 2; ++row) samples.offsets(0)[row] = row;
    samples.ids(exec, 0)[i] = 10 + i;
  }
  tessera::parquet_writer writer("samples.parquet", schema);
  writer.write(exec, samples.view());
  writer.finish();
  tessera::parquet_log const log({"samples.parquet"}, schema);
  tessera::cluster_by_session(exec, log, "clustered.parquet");
  tessera::parquet_log({"clustered.parquet"}, schema).read(exec, 0, samples);
  return samples.view().sparse[0].row(0)[0] == 11 ? 0 : 1;
}
