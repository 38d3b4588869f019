/** SourceService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createSourceService(): ServiceImpl<typeof SourceService> {
  return { listSources: unimplemented, upsertSource: unimplemented, removeSource: unimplemented };
}
