/** SourceService: the sources of the configuration file, and those that were added. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { SourceService } from "../../gen/svc/v1/source_pb.ts";
import type { SourceList } from "../packages/source-list.ts";

export function createSourceService(sources: SourceList): ServiceImpl<typeof SourceService> {
  return {
    listSources: () => ({ sources: sources.views() }),

    upsertSource: ({ name, url }) => sources.upsert({ name, url }),

    removeSource: async ({ name }) => {
      await sources.remove(name);
      return { name };
    },
  };
}
