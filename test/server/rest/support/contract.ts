/** Compiles the contract in test/server/rest/vectors.proto. */
import type { DescMessage, DescService, FileRegistry } from "@bufbuild/protobuf";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { collectRoutes } from "../../../../src/codegen/collect-routes.ts";
import { readContractOptions } from "../../../../src/codegen/contract-options.ts";
import type { Route } from "../../../../src/server/rest/router.ts";
import { compileProtos } from "./compile-protos.ts";

export interface TestContract {
  readonly registry: FileRegistry;
  readonly service: DescService;
  readonly kinds: DescMessage;
  readonly routes: readonly Route[];
}

export async function loadTestContract(): Promise<TestContract> {
  const text = await readFile(join(import.meta.dirname, "../vectors.proto"), "utf8");
  const registry = await compileProtos({ "svc/test/v1/vectors.proto": text });
  const service = registry.getService("svc.test.v1.VectorService");
  const kinds = registry.getMessage("svc.test.v1.Kinds");
  if (service === undefined || kinds === undefined) throw new Error("vectors.proto has no VectorService");
  const options = readContractOptions(registry.files);
  return { registry, service, kinds, routes: collectRoutes([service], (method) => options.httpRule(method)) };
}
