// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.

/** Who may call a method, and the capability that ships it (empty: part of the base). */
export interface MethodPolicy {
  readonly access: "USER" | "ROOT" | "PRIMARY";
  readonly capability: string;
}

/** Every method of the contract by its full name, `svc.v1.AppService/ListApps`. */
export const methodPolicies = {
  "svc.v1.AppService/ListApps": {"access":"USER","capability":""},
  "svc.v1.AppService/InstallApp": {"access":"USER","capability":""},
  "svc.v1.AppService/InstallAppStream": {"access":"USER","capability":""},
  "svc.v1.AppService/GetApp": {"access":"USER","capability":""},
  "svc.v1.AppService/RemoveApp": {"access":"USER","capability":""},
  "svc.v1.AppService/GetAppDisk": {"access":"USER","capability":"app.disk"},
  "svc.v1.AppService/GetAppImage": {"access":"USER","capability":""},
  "svc.v1.AppService/RepullApp": {"access":"USER","capability":""},
  "svc.v1.AppService/ListAppPorts": {"access":"USER","capability":"app.ports"},
  "svc.v1.AppService/UpgradeApp": {"access":"USER","capability":"app.upgrade"},
  "svc.v1.AppService/UpgradeAppStream": {"access":"USER","capability":"app.upgrade"},
  "svc.v1.AppService/CloneApp": {"access":"USER","capability":"app.clone"},
  "svc.v1.AppService/CloneAppStream": {"access":"USER","capability":"app.clone"},
  "svc.v1.AppService/StartApp": {"access":"USER","capability":""},
  "svc.v1.AppService/StopApp": {"access":"USER","capability":""},
  "svc.v1.AppService/RestartApp": {"access":"USER","capability":""},
  "svc.v1.AppService/GetAppLogs": {"access":"USER","capability":""},
  "svc.v1.AppService/StreamAppLogs": {"access":"USER","capability":"app.logs.follow"},
  "svc.v1.AppService/GetAppSettings": {"access":"USER","capability":"app.settings"},
  "svc.v1.AppService/UpdateAppSettings": {"access":"USER","capability":"app.settings"},
  "svc.v1.AppService/IssueConsoleToken": {"access":"USER","capability":"console.exec"},
  "svc.v1.AppService/GetDiskReport": {"access":"USER","capability":"app.disk"},
  "svc.v1.AppService/GetPortReport": {"access":"USER","capability":"app.ports"},
  "svc.v1.AppService/GetAppStats": {"access":"USER","capability":"app.stats"},
  "svc.v1.AppService/StreamAppStats": {"access":"USER","capability":"app.stats"},
  "svc.v1.AppService/ListStacks": {"access":"USER","capability":""},
  "svc.v1.DaemonService/GetStatus": {"access":"USER","capability":""},
} as const satisfies Readonly<Record<string, MethodPolicy>>;

/** Full name of a method of the contract. */
export type MethodName = keyof typeof methodPolicies;
