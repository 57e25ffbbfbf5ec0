"""The two worlds of the pages, which all tests of a file share, and who is signed in there."""

from __future__ import annotations

from copy import deepcopy

import pytest
from django.test import Client

from tests.pages.admin_world import House, make_house, signed_in
from tests.pages.user_world import World, make_world


@pytest.fixture(scope="module")
def built_house(module_db: None) -> House:
    return make_house()


@pytest.fixture(scope="module")
def built_world(module_db: None) -> World:
    return make_world()


@pytest.fixture
def house(built_house: House, db: None) -> House:
    return deepcopy(built_house)


@pytest.fixture
def world(built_world: World, db: None) -> World:
    return deepcopy(built_world)


@pytest.fixture
def admin(house: House) -> Client:
    return signed_in(house.people.admin)


@pytest.fixture
def owner(world: World) -> Client:
    return world.client("owner")
