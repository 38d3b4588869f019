/** DockerService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createDockerService(): ServiceImpl<typeof DockerService> {
  return {
    listContainers: unimplemented,
    listContainerStats: unimplemented,
    listImages: unimplemented,
    listVolumes: unimplemented,
    listNetworks: unimplemented,
    getDockerDiskUsage: unimplemented,
    pruneDocker: unimplemented,
    controlContainer: unimplemented,
    inspectContainer: unimplemented,
    getContainerLogs: unimplemented,
    streamContainerLogs: unimplemented,
    streamDockerEvents: unimplemented,
  };
}
