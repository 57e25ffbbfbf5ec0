"""The two worlds of the pages, which all tests of a file share, and who is signed in there."""

from __future__ import annotations

from copy import deepcopy

import pytest
from django.test import Client

from tests.pages.admin_world import AdminWorld, make_admin_world
from tests.pages.user_world import World, client_of, make_world


@pytest.fixture(scope="module")
def built_admin_world(module_db: None) -> AdminWorld:
    return make_admin_world()


@pytest.fixture(scope="module")
def built_world(module_db: None) -> World:
    return make_world()


@pytest.fixture
def admin_world(built_admin_world: AdminWorld, db: None) -> AdminWorld:
    return deepcopy(built_admin_world)


@pytest.fixture
def world(built_world: World, db: None) -> World:
    return deepcopy(built_world)


@pytest.fixture
def admin(admin_world: AdminWorld) -> Client:
    return client_of(admin_world.people.admin)


@pytest.fixture
def owner(world: World) -> Client:
    return world.client("owner")
