"""The main job through a client that openapi-python-client made of openapi.json."""

import os

from svc_client import AuthenticatedClient
from svc_client.api.app_service import (
    get_app,
    install_app,
    list_apps,
    remove_app,
    start_app,
    update_app_settings,
)
from svc_client.models import App, AppSettings, Error, InstallAppRequest, RemoveAppResponse
from svc_client.models import UpdateAppSettingsBody, UpdateAppSettingsBodyValues

spec = os.environ["SVC_SPEC"]
client = AuthenticatedClient(base_url=os.environ["SVC_URL"], token=os.environ["SVC_TOKEN"], timeout=60)


def values(**chosen: object) -> UpdateAppSettingsBody:
    return UpdateAppSettingsBody(values=UpdateAppSettingsBodyValues.from_dict(chosen))


assert list_apps.sync(client=client).apps == []

refused = install_app.sync_detailed(client=client, body=InstallAppRequest(spec=spec))
assert refused.status_code == 409
assert isinstance(refused.parsed, Error) and refused.parsed.reason == "license_required", refused.parsed
assert refused.parsed.license_required.licenses[0].name == "LICENSE"

installed = install_app.sync(client=client, body=InstallAppRequest(spec=spec, license_ack=True))
assert isinstance(installed, App) and installed.state == "STOPPED", installed
started = start_app.sync(installed.id, client=client)
assert isinstance(started, App) and started.state == "RUNNING", started

settings = update_app_settings.sync(installed.id, client=client, body=values(greeting="moin"))
assert isinstance(settings, AppSettings) and settings.values["greeting"] == "moin", settings
broken = update_app_settings.sync(installed.id, client=client, body=values(colour="red"))
assert isinstance(broken, Error) and broken.reason == "invalid_request", broken
assert [violation.field for violation in broken.invalid_request.violations] == ["values.colour"]

assert isinstance(remove_app.sync(installed.id, client=client), RemoveAppResponse)
gone = get_app.sync(installed.id, client=client)
assert isinstance(gone, Error) and gone.reason == "not_found", gone
