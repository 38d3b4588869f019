/** FileService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { FileService } from "../../gen/svc/v1/file_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createFileService(): ServiceImpl<typeof FileService> {
  return {
    listDirectory: unimplemented,
    statPath: unimplemented,
    createDirectory: unimplemented,
    movePath: unimplemented,
    copyPath: unimplemented,
    deletePaths: unimplemented,
    createArchive: unimplemented,
    readFile: unimplemented,
    writeFile: unimplemented,
    setPathAttributes: unimplemented,
    listSystemIdentities: unimplemented,
  };
}
