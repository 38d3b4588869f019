import type { DescService } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { implement, type BoundService } from "../../src/rpc/bound-service.ts";

/** Ties handlers to a service whose descriptors are there. */
export function bindService<S extends DescService>(service: S, impl: ServiceImpl<S>): BoundService {
  return implement(service.typeName, () => service, impl);
}
