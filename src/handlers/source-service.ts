/** SourceService: the sources of the configuration file, those that were added, and what they have. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ListedPackageSchema, SourceService } from "../../gen/svc/v1/source_pb.ts";
import type { Apps } from "../apps/apps.ts";
import { describePermissions } from "../packages/permissions.ts";
import type { SourceList } from "../packages/source-list.ts";
import { specOf, type ListedPackage } from "../packages/sources.ts";
import { userOf } from "../rpc/user-context.ts";

const defaultFound = 100;

export function createSourceService(
  sources: SourceList,
  apps: Pick<Apps, "searchPackages">,
): ServiceImpl<typeof SourceService> {
  return {
    listSources: () => ({ sources: sources.views() }),

    upsertSource: ({ name, url }) => sources.upsert({ name, url }),

    removeSource: async ({ name }) => {
      await sources.remove(name);
      return { name };
    },

    searchPackages: async ({ query, source, limit = defaultFound }, context) => {
      const words = query.split(/\s+/).filter((word) => word !== "");
      const wanted = source === "" ? undefined : source;
      const found = await apps.searchPackages(words, wanted, userOf(context), { signal: context.signal });
      return {
        packages: found.packages.slice(0, limit).map(listedMessage),
        errors: found.errors,
        total: found.packages.length,
      };
    },
  };
}

function listedMessage(listed: ListedPackage): MessageInitShape<typeof ListedPackageSchema> {
  const { source, id, name, summary, homepage, license, runtime, permissions, tags, sizeBytes } = listed;
  return {
    ...{ source, id, name, summary, homepage, license, runtime, spec: specOf(listed) },
    permissions: describePermissions(permissions),
    tags: [...tags],
    ...(sizeBytes !== undefined && { sizeBytes: BigInt(sizeBytes) }),
  };
}
