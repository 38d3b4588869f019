/** BackupService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createBackupService(): ServiceImpl<typeof BackupService> {
  return {
    listBackups: unimplemented,
    listBackupStorages: unimplemented,
    upsertBackupStorage: unimplemented,
    removeBackupStorage: unimplemented,
    createBackup: unimplemented,
    restoreBackup: unimplemented,
    deleteBackup: unimplemented,
  };
}
