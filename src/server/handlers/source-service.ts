/** SourceService: the sources of the configuration file, added sources, and their packages. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ListedPackageSchema, SourceService } from "../../../gen/svc/v1/source_pb.ts";
import type { PackageSearch } from "../../apps/changes/package-search.ts";
import { describePermissions } from "../../packages/manifest/permissions.ts";
import type { SourceConfig, SourceList } from "../../packages/sources/source-list.ts";
import { specOf, type ListedPackage } from "../../packages/sources/sources.ts";
import { userOf } from "../rpc/user-context.ts";

const defaultFound = 100;

export function createSourceService(
  sources: SourceList,
  packages: PackageSearch,
): ServiceImpl<typeof SourceService> {
  return {
    listSources: () => ({ sources: sources.views() }),

    upsertSource: ({ name, url, check }, context) => {
      const { signal } = context;
      const read = (source: SourceConfig) => packages.checkSource(source, userOf(context), { signal });
      return sources.upsert({ name, url }, check ? read : undefined);
    },

    removeSource: async ({ name }) => {
      await sources.remove(name);
      return { name };
    },

    searchPackages: async ({ query, source, limit = defaultFound }, context) => {
      const words = query.split(/\s+/).filter((word) => word !== "");
      const sourceName = source === "" ? undefined : source;
      const found = await packages.search(words, sourceName, userOf(context), { signal: context.signal });
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
