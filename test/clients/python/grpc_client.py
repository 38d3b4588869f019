"""
The main job through grpcio, with what grpcio-tools made of proto/, over TCP and over the unix socket; errors are read
from their rich details.
"""

import os

import grpc
from google.protobuf.struct_pb2 import Struct
from grpc_status import rpc_status
from svc.v1 import app_pb2, app_pb2_grpc, error_pb2

spec = os.environ["SVC_SPEC"]


def detail_of(call, code: grpc.StatusCode) -> error_pb2.ErrorDetail:
    """The detail of the error that `call` must fail with."""
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        detail = error_pb2.ErrorDetail()
        assert rpc_status.from_call(error).details[0].Unpack(detail)
        return detail
    raise AssertionError(f"no error, but {code} was due")


def values(**chosen: object) -> Struct:
    struct = Struct()
    struct.update(chosen)
    return struct


def main_job(apps: app_pb2_grpc.AppServiceStub, metadata: list[tuple[str, str]]) -> None:
    assert not apps.ListApps(app_pb2.ListAppsRequest(), metadata=metadata).apps

    refused = detail_of(
        lambda: apps.InstallApp(app_pb2.InstallAppRequest(spec=spec), metadata=metadata),
        grpc.StatusCode.FAILED_PRECONDITION,
    )
    assert refused.reason == "license_required"
    assert refused.license_required.licenses[0].name == "LICENSE"

    installed = apps.InstallApp(app_pb2.InstallAppRequest(spec=spec, license_ack=True), metadata=metadata, timeout=60)
    assert installed.state == "STOPPED", installed
    assert apps.StartApp(app_pb2.StartAppRequest(id=installed.id), metadata=metadata).state == "RUNNING"

    settings = apps.UpdateAppSettings(
        app_pb2.UpdateAppSettingsRequest(id=installed.id, values=values(greeting="moin")), metadata=metadata
    )
    assert settings.values["greeting"] == "moin", settings
    broken = detail_of(
        lambda: apps.UpdateAppSettings(
            app_pb2.UpdateAppSettingsRequest(id=installed.id, values=values(colour="red")), metadata=metadata
        ),
        grpc.StatusCode.INVALID_ARGUMENT,
    )
    assert [violation.field for violation in broken.invalid_request.violations] == ["values.colour"], broken

    apps.RemoveApp(app_pb2.RemoveAppRequest(id=installed.id), metadata=metadata)
    gone = detail_of(
        lambda: apps.GetApp(app_pb2.GetAppRequest(id=installed.id), metadata=metadata), grpc.StatusCode.NOT_FOUND
    )
    assert gone.reason == "not_found", gone


main_job(
    app_pb2_grpc.AppServiceStub(grpc.insecure_channel(os.environ["SVC_URL"].removeprefix("http://"))),
    [("authorization", f"Bearer {os.environ['SVC_TOKEN']}")],
)
main_job(app_pb2_grpc.AppServiceStub(grpc.insecure_channel(f"unix:{os.environ['SVC_SOCKET']}")), [])
