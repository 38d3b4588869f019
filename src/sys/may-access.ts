import { access, constants } from "node:fs/promises";

/** Whether this process may access a path; without a mode, whether the path exists. @param mode such as `constants.X_OK` */
export function mayAccess(path: string, mode: number = constants.F_OK): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}
