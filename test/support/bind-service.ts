import type { DescService } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { implement, type BoundService } from "../../src/server/rpc/bound-service.ts";

/** Binds handlers to a service whose descriptors are loaded. */
export function bindService<S extends DescService>(service: S, impl: ServiceImpl<S>): BoundService {
  return implement(service.typeName, () => service, impl);
}
